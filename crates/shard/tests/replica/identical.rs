//! Two replicas that are fed the same entries agree on their state and on every byte of every segment
//! file, whatever each does meanwhile.

use weir_model::entry::Entry;

use super::support::{Replica, Traffic, content, names};

/// All segment files by path. Trimmed and closed ones may still be there or not.
fn segment_files(replica: &Replica) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for partition in replica.shard.view().partitions() {
        let dir = partition.id().to_string();
        let first = partition.segments().first().map_or(i64::MAX, |segment| segment.id.base);
        for name in names(&replica.disk, &dir) {
            let base = name.strip_suffix(".log").and_then(|base| base.parse::<i64>().ok());
            if base.is_some_and(|base| base >= first) {
                let path = format!("{dir}/{name}");
                files.push((path.clone(), content(&replica.disk, &path)));
            }
        }
    }
    files
}

#[test]
fn replicas_agree_byte_by_byte() {
    for seed in 0..20 {
        let mut traffic = Traffic::new(seed);
        let entries: Vec<Entry> = (0..300).map(|_| traffic.entry()).collect();
        let (mut one, mut other) = (Replica::new(seed), Replica::new(seed + 1000));
        for entry in entries {
            let outcomes = one.apply_entry(entry.clone());
            assert_eq!(outcomes, other.apply_entry(entry));
            if traffic.chance(3) {
                one.writer.run_once().unwrap();
            }
            if traffic.chance(30) {
                one.checkpoint().unwrap();
            }
            if traffic.chance(60) {
                one.reopen();
            }
            if traffic.chance(40) {
                other.write().unwrap();
            }
            if traffic.chance(90) {
                other.checkpoint().unwrap();
            }
        }
        one.write().unwrap();
        other.write().unwrap();
        assert_eq!(one.digest(), other.digest(), "seed {seed}");
        let (a, b) = (segment_files(&one), segment_files(&other));
        assert!(a.len() > 1, "seed {seed}: only {} files", a.len());
        assert!(a == b, "seed {seed}: segment files differ");
        one.check();
        other.check();
    }
}
