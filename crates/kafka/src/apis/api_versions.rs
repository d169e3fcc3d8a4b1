//! ApiVersions: what is served.

use bytes::Bytes;
use weir_kafka_wire::{ApiVersionsRequest, ApiVersionsResponse, ErrorCode};

use crate::pipeline::Answer;
use crate::session::{Call, answer_of};

/// First version in which clients name themselves.
const CLIENT_NAMES_FROM_VERSION: i16 = 3;

pub(crate) async fn answer(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let named_well =
        is_software_name(&request.client_software_name) && is_software_name(&request.client_software_version);
    if call.version >= CLIENT_NAMES_FROM_VERSION && !named_well {
        call.count_error();
        return ApiVersionsResponse { error_code: ErrorCode::INVALID_REQUEST, ..Default::default() };
    }
    // Features are left out, and with them their epoch: librdkafka before 2.2 cannot skip the tagged
    // fields of this response, and a field equal to its default is not written.
    ApiVersionsResponse { api_keys: call.front.served.clone(), ..Default::default() }
}

/// A version of ApiVersions that is newer than this broker: error 35 in the layout of version 0, with
/// what is served. A client that is cut off instead tries again and again.
pub(crate) fn refuse_version(call: &Call, _body: Bytes) -> Option<Answer> {
    call.count_error();
    let frame = ApiVersionsResponse::unsupported_version(call.correlation_id, &call.front.served).ok()?;
    call.answered(frame.len());
    Some(answer_of(frame, Vec::new(), None))
}

/// Letters, digits, and inside also `-` and `.` (KIP-511).
fn is_software_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let bytes = name.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().copied().all(inner)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_software_name;

    #[test]
    fn software_names_are_checked_as_kafka_does() {
        for good in ["apache-kafka-java", "4.4.0", "a", "librdkafka"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a_b", "\u{e4}"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
