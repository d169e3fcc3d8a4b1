//! One shard's replica on this node, as its handle sees it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use weir_model::{NodeId, ShardId};
use weir_shard::ShardView;

use crate::admission::Gate;
use crate::errors::ProposeError;
use crate::gathering::Submitted;
use crate::leadership::Leadership;
use crate::raft::machine::MachineStatus;
use crate::raft::types::RaftHandle;
use crate::transport::Transport;

pub(crate) struct Replica {
    pub shard: ShardId,
    pub agreement: Agreement,
    pub view: ShardView,
    pub gate: Arc<Gate>,
    pub submitted: mpsc::Sender<Submitted>,
    /// For what goes to whoever leads; none where that is always this node.
    pub relayed: Option<mpsc::Sender<Submitted>>,
    pub leadership: Arc<watch::Sender<Leadership>>,
    pub command_bytes_max: usize,
    /// Why no commands are taken any more.
    pub closed: Mutex<Option<ProposeError>>,
}

/// Who agrees on a shard's entries.
pub(crate) enum Agreement {
    /// The replicas of a Raft group.
    Group { raft: RaftHandle, machine: Arc<MachineStatus>, transport: Arc<dyn Transport> },
    /// This node by itself: the shard is a temporary one.
    Alone(NodeId),
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
        if let Agreement::Group { machine, .. } = &self.agreement
            && let Some(why) = machine.stopped()
        {
            return ProposeError::Stopped(why);
        }
        self.closed().unwrap_or_else(|| ProposeError::Stopped(otherwise.to_owned()))
    }
}
