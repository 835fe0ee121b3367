//! The page of the fleet: the same picture as `takopi fleet status`, drawn again every second.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use takopi_fleet::PgBoard;

use super::page;

/// The page and its figures.
pub(crate) fn routes(board: Arc<PgBoard>) -> axum::Router {
    axum::Router::new()
        .route("/fleet", get(page::fleet))
        .route("/fleet/status", get(status))
        .with_state(board)
}

async fn status(State(board): State<Arc<PgBoard>>) -> Response {
    match board.overview().await {
        Ok(now) => Json(now).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}
