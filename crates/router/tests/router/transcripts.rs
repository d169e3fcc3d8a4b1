//! Runs the transcripts in `tests/transcripts`: exchanges, bindings and messages in, queues out.

use std::path::Path;

use weir_testing::transcript;

use super::scene::Scene;

fn check(file: &Path) {
    let mut scene = Scene::default();
    transcript::check(file, |lines| lines.iter().map(|line| scene.run(line)).collect());
}

weir_testing::transcripts! {
    check: alternate consistent_hash default delayed deletions direct exchanges fanout headers local_random
    modulus_hash random topic
}
