//! Queues as they are judged: what happened to them, and what must never happen.
//!
//! Clients, nodes and the auditor write down what they do and see in one [`History`], in the order in which it happened
//! in simulated time; the simulator sees all of it at once, which nobody in a real cluster can. [`check`] holds the
//! whole history against the rules when the run is over. It knows nothing of the code that it judges.

mod check;
mod counts;
mod damage;
mod history;
mod keys;
mod loss;
mod order;
mod parking;
mod records;
#[cfg(test)]
mod tests;

pub use check::check;
pub use damage::QueueDamage;
pub use history::{Event, Figures, Handed, Happening, History, Message, SessionId, Settling};
