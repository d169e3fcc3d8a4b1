//! The table of all targets.

/// Something that must hold for any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its file and of the libFuzzer binary.
    pub name: &'static str,
    /// Takes any bytes; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs that are valid, or nearly, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident,)*) => {
        $( mod $name; )*

        /// Every target.
        pub const TARGETS: &[Target] = &[$(
            Target { name: stringify!($name), run: $name::run, seeds: $name::seeds },
        )*];
    };
}

targets! {
    amqp_frames,
    amqp_methods,
    amqp_tables,
    configuration,
    decompress,
    entry,
    journal,
    kafka_consumer_protocol,
    kafka_request,
    kafka_response,
    partition_index,
    partition_segment,
    peer_frames,
    peer_handshake,
    peer_messages,
    peer_shards,
    shard_checkpoint,
}
