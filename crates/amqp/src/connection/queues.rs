//! Asking a queue something while others may delete it.

use weir_broker::queues::{QueueGone, QueueRef};
use weir_broker::topology::QueueInfo;

use super::Connection;
use crate::errors::Failure;

/// How often a queue is asked that ends whenever it is asked. It is there each time, and was just opened.
const TRIES: usize = 5;

impl Connection {
    /// Asks a queue that this connection may use. One that has ended because nobody used it is opened anew, and one
    /// that was deleted meanwhile is as good as never declared.
    pub(super) async fn ask_queue<T, F>(
        &mut self,
        name: &str,
        ask: impl Fn(QueueRef) -> F,
    ) -> Result<(QueueInfo, QueueRef, T), Failure>
    where
        F: Future<Output = Result<T, QueueGone>>,
    {
        for _ in 0..TRIES {
            let info = self.need_queue(name)?;
            self.check_not_others(&info, name)?;
            let queue = match self.front.broker.open_queue(&info).await {
                Ok(queue) => queue,
                Err(error) => {
                    self.need_queue(name)?;
                    return Err(error.into());
                }
            };
            if let Ok(answer) = ask(queue.clone()).await {
                return Ok((info, queue, answer));
            }
        }
        self.need_queue(name)?;
        Err(QueueGone.into())
    }
}
