//! The `weir` binary. Everything is in the library beside it; here is only what a process has one of.

/// Batches are allocated on one thread and freed on another all day; this allocator is good at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    weir::run(std::env::args_os())
}
