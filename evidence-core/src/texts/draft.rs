//! Recording a text with the write that first refers to it.

use crate::context::{Context, Draft};
use crate::error::Result;
use crate::fact::Fact;
use crate::texts::record::TextRef;

impl Draft {
    /// Records a text for the facts that follow, unless the organization already has a readable copy. Texts
    /// are never deleted, so this needs no precondition. Two concurrent writes may both record the text.
    pub(crate) async fn add_text(
        &mut self,
        text: impl AsRef<str> + Into<String>,
        reference: TextRef,
        cx: &Context<'_>,
    ) -> Result<()> {
        let kept = cx.store().texts(cx.org()?, &[reference.sha256]).await?;
        if !kept.iter().any(|kept| kept == text.as_ref()) {
            self.fact(Fact::TextKept { text: text.into() });
        }
        Ok(())
    }
}
