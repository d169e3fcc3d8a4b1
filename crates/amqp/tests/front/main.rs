//! The front over a whole broker: what other people's clients rely on beyond what they say.

mod support;

mod connections;
mod consumers;
mod declarations;
mod leaders;
mod transactions;
