//! The API as an OpenAPI document.
//!
//! Idea: the schemas of bodies are generated from the types themselves; the paths, with their
//! parameters and bodies, are listed here. Only tests turn the feature `schema` on, so no program
//! contains any of it.
//! Source: OpenAPI 3.1.0, whose schemas are those of JSON Schema 2020-12.
//! Limits: the text of the metrics is not described.

use ballast_model::GuestChange;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::{
    API_VERSION, CarriedReply, CarriedView, CommandReply, ErrorReply, ExplainReply, FleetReply,
    GuestsReply, MetricsFormat, ModeReply, PlanReply, Reserve, SetMode, SetPolicy, StatusReply,
    WhatIfReply, path,
};

/// The place of the schemas in the document.
const SCHEMAS: &str = "/components/schemas";
/// Version of the document: the API's version, then counts of additions and of corrections.
const VERSION: &str = "1.3.1";

/// The schemas collected so far. Requests and replies have their own, because a request may omit
/// fields that a reply always has.
struct Schemas {
    requests: SchemaGenerator,
    replies: SchemaGenerator,
}

impl Schemas {
    fn new() -> Schemas {
        let generator = |contract| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
            settings.contract = contract;
            settings.into_generator()
        };
        Schemas {
            requests: generator(Contract::Deserialize),
            replies: generator(Contract::Serialize),
        }
    }

    fn request<T: JsonSchema>(&mut self) -> Value {
        json!({
            "required": true,
            "content": json_content(self.requests.subschema_for::<T>().to_value()),
        })
    }

    fn reply<T: JsonSchema>(&mut self, description: &str) -> Value {
        let schema = self.replies.subschema_for::<T>().to_value();
        json!({ "description": description, "content": json_content(schema) })
    }

    fn into_components(mut self) -> Map<String, Value> {
        let mut all = self.replies.take_definitions(true);
        all.extend(self.requests.take_definitions(true));
        all
    }
}

fn json_content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// An operation: its summary, its parameters, its reply and its refusal.
fn operation(summary: &str, parameters: Value, reply: Value, refusal: Value) -> Value {
    json!({
        "summary": summary,
        "parameters": parameters,
        "responses": { "200": reply, "default": refusal },
    })
}

/// The document.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let refusal =
        schemas.reply::<ErrorReply>("The request was refused: what is wrong, and what to do.");
    let mut paths = Map::new();
    let mut get = |path: &str, summary, parameters, reply| {
        let operation = operation(summary, parameters, reply, refusal.clone());
        paths.insert(path.to_owned(), json!({ "get": operation }));
    };
    let status = schemas.reply::<StatusReply>("Host and guests.");
    get(path::STATUS, "Host and guests in summary", json!([]), status);
    let guests = schemas.reply::<GuestsReply>("The guests.");
    get(path::GUESTS, "Only the guests", json!([]), guests);
    let explained =
        schemas.reply::<ExplainReply>("Every step of the last decision about the guest.");
    let summary = "Every step of the last decision about one guest";
    get(path::EXPLAIN, summary, json!([guest("A guest's name.")]), explained);
    let carried =
        schemas.reply::<CarriedReply>("What the guest would take along, and what it has brought.");
    let summary = "What one guest would take along to another host";
    get(path::CARRIED, summary, json!([guest("A guest's name.")]), carried);
    let plan = schemas.reply::<PlanReply>("A plan.");
    let description = "Whether to make a new plan from the latest observations, as if a decision \
                       were due, Ballast were not paused, and its mode were `balance`. Nothing \
                       of it is carried out.";
    let dry_run = query("dry_run", description, json!({ "type": "boolean", "default": false }));
    get(path::PLAN, "The latest plan, or a dry run", json!([dry_run]), plan);
    let mode = schemas.reply::<ModeReply>("The mode.");
    get(path::MODE, "The mode in force", json!([]), mode);
    let what_if =
        schemas.reply::<WhatIfReply>("What balancing under the policy would have gained.");
    let policy = query(
        "policy",
        "The policy's name; absent: the policy in force.",
        json!({ "type": "string" }),
    );
    let seconds =
        json!({ "type": "integer", "minimum": 1, "maximum": 31_622_400, "default": 86_400 });
    let since = query(
        "since_s",
        "How much of the journal to replay, in seconds back from its last tick.",
        seconds,
    );
    let summary = "Replay the journal under a policy; one request at a time";
    get(path::WHAT_IF, summary, json!([policy, since]), what_if);
    let fleet = schemas.reply::<FleetReply>("The fleet, or what to do if there is none to show.");
    get(path::FLEET, "The fleet that the host is in", json!([]), fleet);
    get(path::METRICS, "Figures for Prometheus", json!([]), metrics());

    let done = schemas.reply::<CommandReply>("The command was carried out.");
    let mut post = |path: &str, summary, parameters, body: Option<Value>| {
        let mut operation = operation(summary, parameters, done.clone(), refusal.clone());
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods["post"] = operation;
    };
    let known = || json!([guest("A guest's name.")]);
    let change = schemas.request::<GuestChange>();
    post(path::SET_GUEST, "Change one guest's limits", known(), Some(change.clone()));
    let summary = "Change one guest's limits, also where the guest itself is defined";
    post(path::PERSIST_GUEST, summary, known(), Some(change));
    let carried = schemas.request::<CarriedView>();
    let summary =
        "Take over what one guest has brought from another host; repeating it changes nothing";
    post(path::CARRIED, summary, known(), Some(carried));
    post(path::PAUSE, "Stop moving memory", json!([]), None);
    post(path::RESUME, "Move memory again", json!([]), None);
    post(path::MODE, "Set the mode", json!([]), Some(schemas.request::<SetMode>()));
    post(path::POLICY, "Set the policy", json!([]), Some(schemas.request::<SetPolicy>()));
    let to_come = || json!([guest("The name of a guest that is about to start.")]);
    let reserve = schemas.request::<Reserve>();
    post(path::RESERVE, "Keep memory free for a guest", to_come(), Some(reserve));
    post(path::UNRESERVE, "End a reservation", to_come(), None);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ballast",
            "version": VERSION,
            "description": format!(
                "The API of the Ballast daemon, version {API_VERSION}, on its Unix socket. Root \
                 and the daemon's user may send every request; members of the group in the \
                 daemon's configuration may send GET. Sizes are in bytes. An unknown figure is \
                 `null`, never 0."
            ),
            "license": { "name": "Apache 2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost", "description": "/run/ballast/ballast.sock" }],
        "paths": paths,
        "components": { "schemas": schemas.into_components() },
    })
}

/// The parameter `id` of a path.
fn guest(description: &str) -> Value {
    json!({
        "name": "id",
        "in": "path",
        "required": true,
        "description": description,
        "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" },
    })
}

/// An optional parameter in the query.
fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

fn metrics() -> Value {
    let content: Map<String, Value> = [MetricsFormat::Classic, MetricsFormat::OpenMetrics]
        .map(|format| (format.media_type().to_owned(), json!({ "schema": { "type": "string" } })))
        .into_iter()
        .collect();
    json!({ "description": "Figures in the format that `Accept` asks for.", "content": content })
}
