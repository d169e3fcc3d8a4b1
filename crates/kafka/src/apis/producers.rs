//! InitProducerId: identities of idempotent producers.

use weir_kafka_wire::{ErrorCode, InitProducerIdRequest, InitProducerIdResponse};

use crate::errors::Failure;
use crate::session::Call;

pub(crate) async fn init(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let refused = |code| {
        call.count_error();
        InitProducerIdResponse { error_code: code, producer_epoch: -1, ..Default::default() }
    };
    if request.transactional_id.is_some() {
        // The one code that every client takes for final. Any other that fits is retried for ever.
        return refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    if !call.is_known() {
        return refused(ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    }
    match call.front.broker.init_producer().await {
        Ok((producer_id, producer_epoch)) => {
            InitProducerIdResponse { producer_id, producer_epoch, ..Default::default() }
        }
        Err(error) => {
            let code = Failure::from(&error).code;
            // Producers retry this one; NOT_CONTROLLER would be an answer they do not expect.
            let not_now = [ErrorCode::NOT_CONTROLLER, ErrorCode::REQUEST_TIMED_OUT].contains(&code);
            refused(if not_now { ErrorCode::COORDINATOR_NOT_AVAILABLE } else { code })
        }
    }
}
