//! One shard's replica on this node, as its handle sees it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use weir_model::ShardId;
use weir_shard::ShardView;

use crate::admission::Gate;
use crate::errors::ProposeError;
use crate::leadership::Leadership;
use crate::proposer::Submitted;
use crate::raft::machine::MachineStatus;
use crate::raft::types::RaftHandle;

pub(crate) struct Replica {
    pub shard: ShardId,
    pub raft: RaftHandle,
    pub view: ShardView,
    pub gate: Arc<Gate>,
    pub submitted: mpsc::Sender<Submitted>,
    pub leadership: Arc<watch::Sender<Leadership>>,
    pub machine: Arc<MachineStatus>,
    pub command_bytes_max: usize,
    /// Why no commands are taken any more.
    pub closed: Mutex<Option<ProposeError>>,
}

impl Replica {
    /// Why no commands are taken any more, if so.
    pub(crate) fn closed(&self) -> Option<ProposeError> {
        self.closed.lock().clone()
    }

    /// Takes no commands any more.
    pub(crate) fn close(&self, why: ProposeError) {
        self.closed.lock().get_or_insert(why);
        self.gate.close();
    }

    /// What to say when something of the replica has stopped.
    pub(crate) fn stopped(&self, otherwise: &str) -> ProposeError {
        if let Some(why) = self.machine.stopped() {
            return ProposeError::Stopped(why);
        }
        self.closed().unwrap_or_else(|| ProposeError::Stopped(otherwise.to_owned()))
    }
}
