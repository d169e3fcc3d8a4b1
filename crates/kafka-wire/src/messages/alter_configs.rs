//! AlterConfigs: replaces all settings of a resource.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Resources and their new settings.
    AlterConfigsRequest {
        [0+]    resources: Vec<AlterConfigsResource>,
        [0+]    validate_only: bool,
    }

    /// One resource.
    AlterConfigsResource {
        [0+]    resource_type: i8,
        [0+]    resource_name: KafkaStr,
        [0+]    configs: Vec<AlterableConfig>,
    }

    /// One setting.
    AlterableConfig {
        [0+]    name: KafkaStr,
        [0+]    value: Option<KafkaStr>,
    }

    /// What became of them.
    AlterConfigsResponse {
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
