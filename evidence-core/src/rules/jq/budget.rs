//! What running filters may take. Everything that they do asks here first, so that each program ends, in bounded time and
//! memory, whatever it says.

/// What a run may still take: steps, and bytes of memory, of which none is given back.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    fuel: usize,
    memory: usize,
}

/// Which limit ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// It took too many steps.
    Fuel,
    /// It made too much.
    Memory,
    /// Its calls, or something that it made, nest too deep.
    Depth,
    /// It had too many results.
    Outputs,
}

impl Limit {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::Depth => "depth",
            Self::Outputs => "outputs",
        }
    }
}

/// Reading so many bytes of text, or making them, is a step.
const BYTES_PER_STEP: usize = 16;

impl Budget {
    /// So many steps and bytes.
    pub const fn new(fuel: usize, memory: usize) -> Self {
        Self { fuel, memory }
    }

    /// The steps that are left.
    pub const fn fuel(&self) -> usize {
        self.fuel
    }

    /// Takes steps.
    pub(super) fn steps(&mut self, steps: usize) -> Result<(), Limit> {
        let left = self.fuel.checked_sub(steps);
        // Of a budget that did not suffice nothing is left, whatever is asked of it next.
        self.fuel = left.unwrap_or(0);
        left.map(drop).ok_or(Limit::Fuel)
    }

    /// Takes bytes of memory.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(), Limit> {
        let left = self.memory.checked_sub(bytes);
        self.memory = left.unwrap_or(0);
        left.map(drop).ok_or(Limit::Memory)
    }

    /// Takes the steps of reading so many bytes.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), Limit> {
        self.steps(bytes / BYTES_PER_STEP)
    }

    /// Takes the memory of so many bytes of text, and the steps of making them.
    pub(super) fn bytes(&mut self, bytes: usize) -> Result<(), Limit> {
        self.read(bytes)?;
        self.allocate(bytes)
    }
}
