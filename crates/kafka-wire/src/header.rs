//! What stands in front of every request and every response.

use crate::api::ApiKey;
use crate::error::DecodeError;
use crate::reader::Reader;
use crate::text::KafkaStr;
use crate::wire::{Version, Wire};
use crate::writer::Writer;
use bytes::Bytes;

/// The part of a header that every API and version has in the same layout.
const PLAIN: Version = Version { number: 0, flexible: false };

/// What stands in front of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API; see [`ApiKey::from_code`].
    pub api_key: i16,
    /// Which version of it.
    pub api_version: i16,
    /// Chosen by the client and sent back with the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<KafkaStr>,
}

impl RequestHeader {
    /// Takes the header off the front of a frame (without its length).
    ///
    /// It succeeds also for an API or a version that is not known, so that the broker can answer with the right
    /// correlation id; what is left of the frame then means nothing, except that an ApiVersions request of an
    /// unknown version is to be answered (see
    /// [`ApiVersionsResponse::unsupported_version`](crate::ApiVersionsResponse::unsupported_version)).
    pub fn decode(frame: &mut Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame.clone());
        let mut header = Self {
            api_key: reader.field("RequestHeader.api_key", PLAIN, true)?,
            api_version: reader.field("RequestHeader.api_version", PLAIN, true)?,
            correlation_id: reader.field("RequestHeader.correlation_id", PLAIN, true)?,
            client_id: None,
        };
        let known = ApiKey::from_code(header.api_key).filter(|api| api.has_version(header.api_version));
        if let Some(api) = known {
            // Only lengths of the body are varints: the client id keeps its old layout, so that a broker can
            // read it before it knows what the version is.
            header.client_id = reader.field("RequestHeader.client_id", PLAIN, true)?;
            if api.request_header_version(header.api_version) >= 2 {
                reader.tags("RequestHeader", |_, _| Ok(false))?;
            }
        }
        *frame = reader.into_rest();
        Ok(header)
    }

    /// Writes the header of an API that is known; of another one, the header's first version.
    pub(crate) fn write(&self, writer: &mut Writer) {
        self.api_key.write(writer, PLAIN);
        self.api_version.write(writer, PLAIN);
        self.correlation_id.write(writer, PLAIN);
        writer.field(&self.client_id, "RequestHeader.client_id", PLAIN, true);
        let api = ApiKey::from_code(self.api_key);
        if api.is_some_and(|api| api.request_header_version(self.api_version) >= 2) {
            writer.tags(Vec::new());
        }
    }
}

/// Takes the header off the front of a response frame (without its length): the correlation id.
///
/// A client first looks up by it which request is answered, and with that knows the API and version; see
/// [`peek_correlation_id`].
pub(crate) fn read_response_header(
    reader: &mut Reader,
    api: ApiKey,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = reader.field("ResponseHeader.correlation_id", PLAIN, true)?;
    if api.response_header_version(version) >= 1 {
        reader.tags("ResponseHeader", |_, _| Ok(false))?;
    }
    Ok(correlation_id)
}

pub(crate) fn write_response_header(writer: &mut Writer, api: ApiKey, version: i16, correlation_id: i32) {
    correlation_id.write(writer, PLAIN);
    if api.response_header_version(version) >= 1 {
        writer.tags(Vec::new());
    }
}

/// The correlation id of a response frame (without its length), before the API and version are known.
pub fn peek_correlation_id(frame: &Bytes) -> Result<i32, DecodeError> {
    Reader::new(frame.clone()).field("ResponseHeader.correlation_id", PLAIN, true)
}
