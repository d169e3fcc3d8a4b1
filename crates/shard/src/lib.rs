//! The replicated state machine: apply(command) gives an outcome. No network, no clock.
