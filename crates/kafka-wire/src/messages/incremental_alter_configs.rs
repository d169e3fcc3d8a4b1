//! IncrementalAlterConfigs: changes single settings of a resource.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Resources and what is to change.
    IncrementalAlterConfigsRequest {
        [0+]    resources: Vec<AlterConfigsResource>,
        [0+]    validate_only: bool,
    }

    /// One resource.
    AlterConfigsResource {
        [0+]    resource_type: i8,
        [0+]    resource_name: KafkaStr,
        [0+]    configs: Vec<AlterableConfig>,
    }

    /// One change; `config_operation` is one of the [`operation`] constants.
    AlterableConfig {
        [0+]    name: KafkaStr,
        [0+]    config_operation: i8,
        [0+]    value: Option<KafkaStr>,
    }

    /// What became of them.
    IncrementalAlterConfigsResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    responses: Vec<AlterConfigsResourceResponse>,
    }

    /// What became of one resource.
    AlterConfigsResourceResponse {
        [0+]    error_code: ErrorCode,
        [0+]    error_message: Option<KafkaStr>,
        [0+]    resource_type: i8,
        [0+]    resource_name: KafkaStr,
    }
}

/// What to do with a setting.
pub mod operation {
    /// Give it this value.
    pub const SET: i8 = 0;
    /// Take its value away, so that the default holds again.
    pub const DELETE: i8 = 1;
    /// Add to a list.
    pub const APPEND: i8 = 2;
    /// Take out of a list.
    pub const SUBTRACT: i8 = 3;
}
