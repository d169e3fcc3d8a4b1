//! Brings a node's commands to whoever leads a shard, once each and in order, across changes of leaders.
//!
//! Whoever wants something of a shard that another node leads gives the command to the relay. It numbers what it brings
//! ([`Line`]), and brings it until this node's own replica has carried it out: that is also where the outcome comes
//! from, so that whoever asked can read here what he has written. A leader only says whether he has put a command in
//! his line. What became of it when he is gone shows in the log, or it is brought again to the next one, which takes
//! only what comes next.
//!
//! One call is on its way at a time. What arrives meanwhile goes with the next one.

mod line;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_model::NodeId;
use weir_model::command::{Command, Outcome};
use weir_model::entry::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX};

use crate::admission::Admission;
use crate::errors::ProposeError;
use crate::gathering::{CommandReply, Submitted, take_apart};
use crate::leadership::Leadership;
use crate::raft::rpc::{Answer, Refused, Request};
use crate::replica::Replica;
use crate::transport::{Line as CallLine, Transport};
pub(crate) use line::Line;

/// How long a leader may take to answer.
const CALL_MAX: Duration = Duration::from_secs(5);

/// How long to wait before a leader who could take nothing is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Without any progress for this long, what was taken is brought again: a leader may have lost it without ceasing to
/// lead.
const BRING_AGAIN: Duration = Duration::from_secs(2);

/// How long a command is brought before whoever waits is told that nobody knows what became of it. After that it is no
/// longer brought.
const BROUGHT_MAX: Duration = Duration::from_secs(30);

/// What this node's replica has carried out of what its node has brought.
pub(crate) enum Heard {
    /// A line was opened.
    Opened(u64),
    /// What came of a run of commands.
    Carried { sequence: u64, outcome: Outcome },
}

/// The replica's side: looks at what is applied.
#[derive(Clone)]
pub(crate) struct Ear {
    node: NodeId,
    /// The line that is listened for; 0 for none.
    token: Arc<AtomicU64>,
    heard: mpsc::UnboundedSender<Heard>,
}

impl Ear {
    /// A command of an entry was carried out, with this outcome.
    pub(crate) fn applied(&self, command: &Command, outcome: &Outcome) {
        let heard = match command {
            Command::OpenRelay { node, token } if self.listens_for(*node, *token) => Heard::Opened(*token),
            Command::Relayed { node, token, sequence, .. } if self.listens_for(*node, *token) => {
                Heard::Carried { sequence: *sequence, outcome: outcome.clone() }
            }
            _ => return,
        };
        // At most the line's window waits. The relay is gone only when the node is.
        let _ = self.heard.send(heard);
    }

    fn listens_for(&self, node: NodeId, token: u64) -> bool {
        node == self.node && token == self.token.load(Ordering::Acquire)
    }
}

/// What a relay and its ear are connected by, made before the replica is.
pub(crate) fn ear(node: NodeId) -> (Ear, Hearing) {
    let (sender, heard) = mpsc::unbounded_channel();
    let token = Arc::new(AtomicU64::new(0));
    (Ear { node, token: Arc::clone(&token), heard: sender }, Hearing { token, heard })
}

/// The relay's side of its ear.
pub(crate) struct Hearing {
    token: Arc<AtomicU64>,
    heard: mpsc::UnboundedReceiver<Heard>,
}

/// Brings one shard's commands.
pub(crate) struct Relay {
    pub node: NodeId,
    pub replica: Arc<Replica>,
    pub transport: Arc<dyn Transport>,
    pub submitted: mpsc::Receiver<Submitted>,
    pub hearing: Hearing,
    /// Runs of commands that were submitted and not heard of yet.
    pub in_flight: Arc<AtomicUsize>,
    /// Draws what tells lines apart.
    pub draw_token: Box<dyn FnMut() -> u64 + Send>,
    /// Bytes that are gathered into one run.
    pub run_bytes_max: usize,
}

type Call = Pin<Box<dyn Future<Output = Result<(), Refused>> + Send>>;

impl Relay {
    /// Runs until nobody can submit any more.
    pub(crate) async fn run(mut self) {
        let mut leadership = self.replica.leadership.subscribe();
        let mut line = Line::new(self.node, self.next_token());
        let mut held = None;
        let mut call: Option<Call> = None;
        let mut paused_until: Option<Instant> = None;
        let mut progress_at = Instant::now();
        let mut brought_to = whom(&leadership.borrow_and_update());
        loop {
            let now = Instant::now();
            if paused_until.is_some_and(|until| until <= now) {
                paused_until = None;
            }
            if line.has_brought() && now >= progress_at + BRING_AGAIN {
                line.bring_again();
                progress_at = now;
            }
            if line.began_at().is_some_and(|began| now >= began + BROUGHT_MAX) {
                tracing::warn!(shard = %self.replica.shard, "commands were brought in vain for too long");
                let token = self.next_token();
                for asked in line.give_up(token, now - BROUGHT_MAX) {
                    asked.answer(Err(ProposeError::Timeout), &self.replica.gate);
                }
                self.count(&line);
            }
            while call.is_none()
                && paused_until.is_none()
                && let Some(leader) = brought_to.0
                && let Some(command) = line.next_to_bring()
            {
                if leader == self.node {
                    match self.put_in_own_line(command) {
                        Ok(()) => line.taken(),
                        Err(_) => paused_until = Some(now + PAUSE),
                    }
                } else {
                    call = Some(self.bring(leader, command));
                }
            }
            let again_at = line.has_brought().then_some(progress_at + BRING_AGAIN);
            let give_up_at = line.began_at().map(|began| began + BROUGHT_MAX);
            let wake_at = [paused_until, again_at, give_up_at].into_iter().flatten().min();
            tokio::select! {
                biased;
                heard = self.hearing.heard.recv() => {
                    let Some(heard) = heard else { return };
                    progress_at = Instant::now();
                    self.hear(heard, &mut line);
                }
                changed = leadership.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = whom(&leadership.borrow_and_update());
                    if now != brought_to {
                        brought_to = now;
                        // What the one before has taken may be lost with him, and his answers mean nothing any more.
                        call = None;
                        paused_until = None;
                        line.bring_again();
                    }
                }
                answer = answer_of(&mut call), if call.is_some() => {
                    call = None;
                    progress_at = Instant::now();
                    match answer {
                        Ok(()) => line.taken(),
                        Err(refused) => {
                            tracing::debug!(shard = %self.replica.shard, ?refused, "a leader took nothing");
                            paused_until = Some(Instant::now() + PAUSE);
                        }
                    }
                }
                submitted = self.submitted.recv(), if held.is_none() && line.has_room() => {
                    let Some(first) = submitted else { return };
                    if !line.has_brought() {
                        progress_at = Instant::now();
                    }
                    held = Some(first);
                    while held.is_some() && line.has_room() {
                        let (commands, asked) = take_apart(self.gather(&mut held));
                        line.push(commands, asked, Instant::now());
                    }
                    self.count(&line);
                }
                () = sleep_until(wake_at) => {}
            }
            if held.is_some() && line.has_room() {
                let (commands, asked) = take_apart(self.gather(&mut held));
                line.push(commands, asked, Instant::now());
                self.count(&line);
            }
        }
    }

    /// What waits, up to what goes into one run. What is too much for it is held for the next.
    fn gather(&mut self, held: &mut Option<Submitted>) -> Vec<Submitted> {
        let (mut gathered, mut bytes) = (Vec::new(), 0);
        while let Some(next) = held.take().or_else(|| self.submitted.try_recv().ok()) {
            let size = next.command.approximate_bytes();
            let is_full = bytes + size > self.run_bytes_max || gathered.len() == ENTRY_COMMANDS_MAX;
            if !gathered.is_empty() && is_full {
                *held = Some(next);
                break;
            }
            bytes += size;
            gathered.push(next);
        }
        gathered
    }

    fn hear(&mut self, heard: Heard, line: &mut Line) {
        match heard {
            Heard::Opened(token) => line.opened(token),
            Heard::Carried { sequence, outcome } => {
                let known = line.carried(sequence, outcome);
                if known.is_replaced {
                    // Only another process with this node's number opens a line of ours.
                    tracing::warn!(shard = %self.replica.shard, "the node's line of commands was opened by somebody else");
                    let token = self.next_token();
                    line.reopen(token);
                }
                for (asked, outcomes) in known.told {
                    asked.answer(outcomes, &self.replica.gate);
                }
                self.count(line);
            }
        }
    }

    fn count(&self, line: &Line) {
        self.in_flight.store(line.len(), Ordering::Release);
    }

    fn next_token(&mut self) -> u64 {
        // 0 is that of nobody.
        let token = (self.draw_token)().max(1);
        self.hearing.token.store(token, Ordering::Release);
        token
    }

    /// This node leads: the command goes where all others do. Its room was taken when it was submitted.
    fn put_in_own_line(&self, command: Command) -> Result<(), ProposeError> {
        let submitted = Submitted { command, admission: Admission::elsewhere(), reply: CommandReply::Nobody };
        self.replica.submitted.try_send(submitted).map_err(|_| ProposeError::Overloaded)
    }

    fn bring(&self, leader: NodeId, command: Command) -> Call {
        let (transport, shard) = (Arc::clone(&self.transport), self.replica.shard);
        Box::pin(async move {
            let request = Request::Relay(command).encode();
            let call = transport.call(leader, CallLine::Shard(shard), request);
            let answer = tokio::time::timeout(CALL_MAX, call).await;
            let answer = answer.map_err(|_| Refused::Other("it did not answer in time".to_owned()))?;
            let answer = answer.map_err(|error| Refused::Other(error.to_string()))?;
            match Answer::decode(answer) {
                Ok(Answer::Relay(taken)) => taken,
                Ok(Answer::Refused(why)) => Err(Refused::Other(why)),
                Ok(_) => Err(Refused::Other("the answer is one to another question".to_owned())),
                Err(error) => Err(Refused::Other(error.to_string())),
            }
        })
    }
}

/// Whom commands are brought to, and in which of his leaderships.
fn whom(leadership: &Leadership) -> (Option<NodeId>, u64) {
    (leadership.leader, leadership.term)
}

async fn answer_of(call: &mut Option<Call>) -> Result<(), Refused> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Takes what another node brings, if this one leads, and puts it in the shard's line.
pub(crate) async fn take(replica: &Replica, from: NodeId, command: Command) -> Result<(), Refused> {
    let is_its_own = match &command {
        Command::OpenRelay { node, .. } | Command::Relayed { node, .. } => *node == from,
        _ => false,
    };
    if !is_its_own {
        return Err(Refused::Other("a node brings its own commands, over its own line".to_owned()));
    }
    leads(replica)?;
    let bytes = command.approximate_bytes();
    // A command that just fits does so with its number, for which the journal has room to spare.
    if bytes > replica.command_bytes_max + NUMBER_BYTES_MAX {
        let max = replica.command_bytes_max;
        return Err(Refused::Other(format!("commands of {bytes} bytes are more than the {max} that fit")));
    }
    // A caller who has given up brings it again, and the second one is refused when it is applied.
    let admission = tokio::time::timeout(ADMISSION_MAX, replica.gate.admit_command(&command)).await;
    let admission = admission.map_err(|_| Refused::Overloaded)?;
    let admission = admission.map_err(|error| Refused::Other(error.to_string()))?;
    leads(replica)?;
    let submitted = Submitted { command, admission, reply: CommandReply::Nobody };
    replica.submitted.try_send(submitted).map_err(|_| Refused::Overloaded)
}

/// What a run takes beside its commands.
const NUMBER_BYTES_MAX: usize = 64;

/// How long what is brought waits for room.
const ADMISSION_MAX: Duration = Duration::from_secs(2);

fn leads(replica: &Replica) -> Result<(), Refused> {
    if let Some(error) = replica.closed() {
        return Err(Refused::Other(error.to_string()));
    }
    let leadership = *replica.leadership.borrow();
    if leadership.is_leader { Ok(()) } else { Err(Refused::NotLeader(leadership.leader)) }
}

/// Bytes of commands that are gathered into one run.
pub(crate) fn run_bytes_max(command_bytes_max: usize) -> usize {
    ENTRY_BYTES_MAX.min(command_bytes_max)
}
