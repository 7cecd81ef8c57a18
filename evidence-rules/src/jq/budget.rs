//! The resource budget of running filters. Every operation charges it first, so each program ends in bounded
//! time and memory.

/// The remaining steps and bytes of memory of a run. Memory is never returned to the budget.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    fuel: usize,
    memory: usize,
}

/// The limit that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Too many steps.
    Fuel,
    /// Too much memory.
    Memory,
    /// Calls or values that are nested too deeply.
    Depth,
    /// Too many results.
    Outputs,
}

impl Limit {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::Depth => "depth",
            Self::Outputs => "outputs",
        }
    }
}

/// Number of bytes of text that may be read or created in one step.
const BYTES_PER_STEP: usize = 16;

impl Budget {
    /// Creates a budget of steps and bytes.
    pub const fn new(fuel: usize, memory: usize) -> Self {
        Self { fuel, memory }
    }

    /// Returns the remaining steps.
    pub const fn fuel(&self) -> usize {
        self.fuel
    }

    /// Charges steps.
    pub(super) fn steps(&mut self, steps: usize) -> Result<(), Limit> {
        let left = self.fuel.checked_sub(steps);
        // An exceeded budget stays empty, so that all later charges fail too.
        self.fuel = left.unwrap_or(0);
        left.map(drop).ok_or(Limit::Fuel)
    }

    /// Charges bytes of memory.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(), Limit> {
        let left = self.memory.checked_sub(bytes);
        self.memory = left.unwrap_or(0);
        left.map(drop).ok_or(Limit::Memory)
    }

    /// Charges the steps for reading bytes.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), Limit> {
        self.steps(bytes / BYTES_PER_STEP)
    }

    /// Charges the memory for bytes of text, and the steps for creating them.
    pub(super) fn bytes(&mut self, bytes: usize) -> Result<(), Limit> {
        self.read(bytes)?;
        self.allocate(bytes)
    }
}
