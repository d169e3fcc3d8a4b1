//! Class tx: what a channel has held back is carried out, or forgotten.

use weir_amqp_wire::ReplyCode;
use weir_amqp_wire::methods::tx;

use super::Connection;
use crate::channel::{Mode, Transaction};
use crate::errors::Failure;

impl Connection {
    pub(super) fn select_transactions(&mut self, number: u16) -> Result<(), Failure> {
        let held = self.held_in_transactions.clone();
        let channel = self.channel(number)?;
        match channel.mode {
            Mode::Confirm => return Err(Failure::precondition("cannot switch from confirm to tx mode")),
            Mode::Plain => channel.mode = Mode::Transaction(Transaction::new(&held)),
            Mode::Transaction(_) => {}
        }
        self.send(number, tx::SelectOk {});
        Ok(())
    }

    /// Publishes what is held, then settles. Nothing is settled if something could not be published: the channel
    /// ends then, and what it had comes back.
    pub(super) async fn commit(&mut self, number: u16) -> Result<(), Failure> {
        let (messages, settlements) = self.transaction(number)?.take();
        for (message, route) in messages {
            self.send_on(number, message, &route, None).await?;
        }
        self.flush_messages().await;
        self.until_published().await;
        if std::mem::take(&mut self.transaction(number)?.failed) {
            return Err(Failure::precondition("partial tx completion"));
        }
        for (settled, disposition) in settlements {
            self.settle_all(number, settled, disposition);
        }
        if let Err(gone) = self.settle_durably().await {
            let why = format!("it is not known whether all is settled: {gone}");
            return Err(Failure::new(ReplyCode::InternalError, why));
        }
        self.send(number, tx::CommitOk {});
        Ok(())
    }

    /// What was to be settled is unsettled again, under the tags that it had.
    pub(super) fn roll_back(&mut self, number: u16) -> Result<(), Failure> {
        let unsettled = self.transaction(number)?.roll_back();
        self.channel(number)?.unsettled.restore(unsettled);
        self.send(number, tx::RollbackOk {});
        Ok(())
    }

    fn transaction(&mut self, number: u16) -> Result<&mut Transaction, Failure> {
        match &mut self.channel(number)?.mode {
            Mode::Transaction(transaction) => Ok(transaction),
            _ => Err(Failure::precondition("channel is not transactional")),
        }
    }
}
