//! What the files of a partition are called. `docs/formats.md`, "Partition log".

use std::path::{Path, PathBuf};

use weir_model::Offset;

/// Suffix of files that no manifest named.
pub(super) const ASIDE: &str = ".aside";

/// Suffix of a segment that is being written anew under its own name.
pub(super) const REPAIR: &str = ".repair";

/// What a file of a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
}

impl FileKind {
    pub(super) const ALL: [FileKind; 3] = [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex];

    fn extension(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::OffsetIndex => "index",
            FileKind::TimeIndex => "timeindex",
        }
    }
}

/// The name of a segment's file.
pub(super) fn file_name(base: Offset, generation: u32, kind: FileKind) -> String {
    match generation {
        0 => format!("{base:020}.{}", kind.extension()),
        _ => format!("{base:020}.{generation}.{}", kind.extension()),
    }
}

/// The path of a segment's file.
pub(super) fn file_path(dir: &Path, base: Offset, generation: u32, kind: FileKind) -> PathBuf {
    dir.join(file_name(base, generation, kind))
}

/// What a name in a partition's directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Segment {
        base: Offset,
        generation: u32,
        kind: FileKind,
    },
    /// Something of ours that is not in use: set aside, or an unfinished repair.
    Leftover,
    Unknown,
}

pub(super) fn parse_name(name: &str) -> Name {
    if let Some(rest) = name.strip_suffix(ASIDE).or_else(|| name.strip_suffix(REPAIR)) {
        return match parse_name(rest) {
            Name::Unknown => Name::Unknown,
            _ => Name::Leftover,
        };
    }
    parse_segment(name).unwrap_or(Name::Unknown)
}

fn parse_segment(name: &str) -> Option<Name> {
    let (stem, extension) = name.rsplit_once('.')?;
    let kind = FileKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
    let (base, generation) = match stem.split_once('.') {
        None => (stem, 0),
        Some((base, generation)) => (base, generation.parse().ok().filter(|number| *number > 0)?),
    };
    let base = base.parse().ok()?;
    // Anything that is not exactly what would have been written is somebody else's.
    (base >= 0 && file_name(base, generation, kind) == name).then_some(Name::Segment {
        base,
        generation,
        kind,
    })
}
