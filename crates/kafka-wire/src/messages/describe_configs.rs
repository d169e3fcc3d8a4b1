//! DescribeConfigs: settings, where they come from and what they mean.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Resources whose settings are asked for.
    DescribeConfigsRequest {
        [0+]    resources: Vec<DescribeConfigsResource>,
        [1+]    include_synonyms: bool,
        [3+]    include_documentation: bool,
    }

    /// One resource; `configuration_keys` of `None` asks for all settings.
    DescribeConfigsResource {
        [0+]    resource_type: i8,
        [0+]    resource_name: KafkaStr,
        [0+]    configuration_keys: Option<Vec<KafkaStr>>,
    }

    /// The settings.
    DescribeConfigsResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    results: Vec<DescribeConfigsResult>,
    }

    /// One resource's settings.
    DescribeConfigsResult {
        [0+]    error_code: ErrorCode,
        [0+]    error_message: Option<KafkaStr>,
        [0+]    resource_type: i8,
        [0+]    resource_name: KafkaStr,
        [0+]    configs: Vec<DescribeConfigsResourceResult>,
    }

    /// One setting.
    DescribeConfigsResourceResult {
        [0+]    name: KafkaStr,
        [0+]    value: Option<KafkaStr>,
        [0+]    read_only: bool,
        [1+]    config_source: i8 = -1,
        [0+]    is_sensitive: bool,
        [1+]    synonyms: Vec<DescribeConfigsSynonym>,
        [3+]    config_type: i8,
        [3+]    documentation: Option<KafkaStr>,
    }

    /// The same setting at another place, nearest first.
    DescribeConfigsSynonym {
        [1+]    name: KafkaStr,
        [1+]    value: Option<KafkaStr>,
        [1+]    source: i8,
    }
}
