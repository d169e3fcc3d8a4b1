//! A seed replays exactly: what a failing seed did can be looked at again, as often as one likes.

use std::process::Command;

fn log_of(seed: &str) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-sim"))
        .args(["--seed", seed, "--faults-for", "8", "--log"])
        .env_remove("WEIR_LOG")
        .output()
        .expect("the simulator starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    output.stdout
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (first, second) = (log_of("11"), log_of("11"));
    let text = String::from_utf8_lossy(&first);
    assert!(
        text.lines().filter(|line| line.contains("acknowledged")).count() > 50,
        "the log says too little"
    );
    let difference = text.lines().zip(String::from_utf8_lossy(&second).lines()).position(|(a, b)| a != b);
    assert_eq!(difference, None, "the logs differ from that line on");
    assert_eq!(first.len(), second.len());
}

#[test]
fn another_seed_gives_another_run() {
    assert_ne!(log_of("11"), log_of("12"));
}

#[test]
fn a_run_has_something_of_everything() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-sim"))
        .args(["--seed", "11", "--faults-for", "12"])
        .output()
        .expect("the simulator starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = |line: &str| -> Vec<u64> {
        let line = text.lines().find(|text| text.contains(line)).expect("it is told");
        let words = line.split(' ').skip(2).map(|word| word.trim_matches(';'));
        words.filter_map(|word| word.parse().ok()).collect()
    };
    // Published, parked, taken back; handed out, sessions, again, counted; accepted, released, rejected.
    let queues = figures("queues:");
    assert_eq!(queues.len(), 10, "{text}");
    assert!(queues.iter().all(|figure| *figure > 0), "{text}");
    let others = figures("rewrites seen");
    assert_eq!(others.len(), 3, "{text}");
    assert!(others.iter().all(|figure| *figure > 0), "trims, rewrites and changes of users: {text}");
}
