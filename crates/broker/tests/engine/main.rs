//! The broker over a real node on a simulated disk. One program, because each costs as much to link as all of them.

mod access;
mod leaders;
mod membership;
mod nodes;
mod parking;
mod queues;
mod records;
mod redrive;
mod remote;
mod support;
mod topics;
mod unique;
