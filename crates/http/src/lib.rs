//! The admin API, metrics and health over HTTP.
