//! What is said first on the port for nodes, by whoever reaches it.

pub fn run(data: &[u8]) {
    weir_cluster::read_peer_handshake_anything(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    weir_cluster::peer_handshake_seeds()
}
