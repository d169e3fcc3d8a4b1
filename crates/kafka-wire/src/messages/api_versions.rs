//! ApiVersions: the first request of almost every client, before it knows what the broker speaks.

use crate::api::{ApiKey, Message};
use crate::error::EncodeError;
use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::writer::Frame;

messages! {
    /// Asks which APIs and versions the broker serves.
    ApiVersionsRequest {
        [3+]        client_software_name: KafkaStr,
        [3+]        client_software_version: KafkaStr,
    }

    /// The versions served.
    ApiVersionsResponse {
        [0+]        error_code: ErrorCode,
        [0+]        api_keys: Vec<ApiVersion>,
        [1+]        throttle_time_ms: i32,
        [3+ tag 0]  supported_features: Vec<SupportedFeatureKey>,
        [3+ tag 1]  finalized_features_epoch: i64 = -1,
        [3+ tag 2]  finalized_features: Vec<FinalizedFeatureKey>,
        [3+ tag 3]  zk_migration_ready: bool,
    }

    /// One API and the versions of it that are served.
    ApiVersion {
        [0+]        api_key: i16,
        [0+]        min_version: i16,
        [0+]        max_version: i16,
    }

    /// A feature and the levels of it that the broker could run.
    SupportedFeatureKey {
        [3+]        name: KafkaStr,
        [3+]        min_version: i16,
        [3+]        max_version: i16,
    }

    /// A feature and the levels of it that the whole cluster runs.
    FinalizedFeatureKey {
        [3+]        name: KafkaStr,
        [3+]        max_version_level: i16,
        [3+]        min_version_level: i16,
    }
}

impl From<ApiKey> for ApiVersion {
    /// What a broker says of an API that it serves in full.
    fn from(api: ApiKey) -> Self {
        let served = api.advertised_versions();
        Self { api_key: api as i16, min_version: *served.start(), max_version: *served.end() }
    }
}

impl ApiVersionsResponse {
    /// The answer to a version of ApiVersions that the broker does not know: error 35 in the layout of version 0,
    /// which every client can read, with what is served. Clients then ask again in a version both know; one
    /// that is disconnected instead gives up or tries blindly (KIP-511).
    pub fn unsupported_version(correlation_id: i32, served: &[ApiVersion]) -> Result<Frame, EncodeError> {
        let response =
            Self { error_code: ErrorCode::UNSUPPORTED_VERSION, api_keys: served.to_vec(), ..Self::default() };
        response.encode_response(0, correlation_id)
    }
}
