//! Keeping a text in the write that first refers to it.

use crate::error::Result;
use crate::fact::Fact;
use crate::service::{Context, Draft};
use crate::texts::record::TextRef;

impl Draft {
    /// Keeps a text, which the facts after this one refer to, where the organization does not have it or it
    /// cannot be read any more. Texts never go, so that this needs no precondition; two writes that race may
    /// both keep one.
    pub(crate) async fn keep_text(
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
