//! What a shard's state is made of. Everything here is plain data that only `machine` changes:
//! ordered, bounded, encodable, and cut into chunks that are copied when they change while somebody
//! else still looks at them.

pub(crate) mod accounts;
pub(crate) mod catalog;
pub(crate) mod chunk;
pub(crate) mod closed;
pub(crate) mod epochs;
pub(crate) mod group;
pub(crate) mod nodes;
pub(crate) mod partition;
pub(crate) mod producers;
pub(crate) mod spans;
pub(crate) mod subscription;
#[cfg(test)]
mod tests;
pub(crate) mod timers;
pub(crate) mod topology;
pub(crate) mod window;
