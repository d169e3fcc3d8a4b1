//! What another node sends once it is known: frames, cut anywhere.

pub fn run(data: &[u8]) {
    weir_cluster::read_peer_frames_anything(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    weir_cluster::peer_frame_seeds()
}
