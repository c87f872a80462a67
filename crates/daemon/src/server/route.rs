//! The one type of handler for all routes.
//!
//! Idea: axum has some kilobytes of code for each type of handler, and of state. So there is one
//! type, a function in a box: it answers at all routes of a router, and holds what it needs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Path, Request};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{RequestPartsExt, Router};

use super::reply::Refusal;

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A request, taken apart into what handlers use.
pub(super) struct RouteRequest {
    /// The path of its route, with `{…}` for a name; empty: there is no such route.
    pub(super) route: String,
    /// The name in its path, empty if its route has none. `Err`: the response to a path that is not
    /// UTF-8.
    pub(super) name: Result<String, Response>,
    pub(super) parts: Parts,
    pub(super) body: Body,
}

/// Answers requests.
#[derive(Clone)]
pub(super) struct RouteHandler(Arc<dyn Fn(RouteRequest) -> Answering + Send + Sync>);

impl RouteHandler {
    pub(super) fn new<F>(answer: impl Fn(RouteRequest) -> F + Send + Sync + 'static) -> RouteHandler
    where
        F: Future<Output = Result<Response, Refusal>> + Send + 'static,
    {
        RouteHandler(Arc::new(move |request: RouteRequest| -> Answering {
            let answer = answer(request);
            Box::pin(async move { answer.await.unwrap_or_else(IntoResponse::into_response) })
        }))
    }

    /// A router with these routes, each with the methods that it takes.
    pub(super) fn router(&self, routes: &[(MethodFilter, &str)]) -> Router {
        let mut router = Router::new();
        for (methods, path) in routes {
            router = router.route(path, on(*methods, self.clone()));
        }
        router
    }
}

impl Handler<(), ()> for RouteHandler {
    type Future = Answering;

    fn call(self, request: Request, _state: ()) -> Answering {
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let route = parts.extensions.get::<MatchedPath>();
            let route = route.map_or_else(String::new, |route| route.as_str().to_owned());
            let name = match parts.extract::<Option<Path<String>>>().await {
                Ok(name) => Ok(name.map_or_else(String::new, |Path(name)| name)),
                Err(rejection) => Err(rejection.into_response()),
            };
            (self.0)(RouteRequest { route, name, parts, body }).await
        })
    }
}
