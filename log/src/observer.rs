//! Whoever wants to know when the high watermark moves.

use std::fmt;
use std::sync::Arc;

use kseg_format::Offset;

/// Is told of a log's high watermark whenever it has changed, up or down, in the order of the changes.
///
/// It is called with the log's mutex held: it may read from the log, and must not change it, nor take long.
///
/// Source: Kafka `LogOffsetsListener`.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Offset) + Send + Sync>);

impl Observer {
    /// One that calls `told`.
    pub fn new(told: impl Fn(Offset) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(told))
    }

    pub(crate) fn tell(&self, high_watermark: Offset) {
        (self.0)(high_watermark);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
