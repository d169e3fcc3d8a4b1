//! Why a configuration is refused: one sentence that names the thing, the value and the remedy.

use std::fmt;

use weir_model::settings::edit_distance;

use super::Source;

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    sentence: String,
}

impl ConfigError {
    /// Refused for the reason that the sentence gives.
    pub fn refused(sentence: impl Into<String>) -> ConfigError {
        ConfigError { sentence: sentence.into() }
    }

    /// The value of a key, from this source, cannot be used.
    pub fn value(key: &str, source: &Source, why: &str) -> ConfigError {
        ConfigError { sentence: format!("{key} ({source}): {why}") }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for ConfigError {}

/// The known name that is nearest to this one, if it is near enough to have been meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, nearest) =
        known.into_iter().map(|known| (edit_distance(name, known), known)).min_by_key(|(d, _)| *d)?;
    (distance <= name.chars().count().max(3) / 2).then_some(nearest)
}

/// "; did you mean that?", or what else helps.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("; did you mean {nearest}?"),
        None => "; `weir config show` lists every key".to_owned(),
    }
}
