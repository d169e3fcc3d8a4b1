//! Exchanges and bindings as they are stored and carried in commands. Names, rules and defaults are
//! those of RabbitMQ, whose clients rely on them; what a message does with them is the router's part.

mod arguments;
mod binding;
mod exchange;
#[cfg(test)]
mod tests;

pub use arguments::{
    ARGUMENT_DEPTH_MAX, ARGUMENT_NAME_BYTES_MAX, ARGUMENTS_BYTES_MAX, ARGUMENTS_MAX, ArgumentValue,
    Arguments, InvalidArguments, argument, check_arguments, decode_arguments, encode_arguments,
};
pub use binding::{BindingMeta, Destination, ROUTING_KEY_BYTES_MAX};
pub use exchange::{
    EXCHANGE_NAME_BYTES_MAX, ExchangeKind, ExchangeMeta, HashSource, Inequivalence, InvalidExchange,
    RoutingKind,
};
