//! What nodes say to each other about a shard.

pub fn run(data: &[u8]) {
    weir_cluster::decode_rpc_anything(data.to_vec().into());
}

pub fn seeds() -> Vec<Vec<u8>> {
    weir_cluster::rpc_seeds()
}
