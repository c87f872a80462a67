// What the page asks of the daemon.

/** Who is logged in: `access`, `csrf`, `by_token`. */
export let session = { access: "none", csrf: null, by_token: false };

/** The daemon refused, or did not answer. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, "the daemon does not answer");
  }
  if (response.ok) return response;
  const reply = await response.json().catch(() => null);
  throw new Refused(response.status, reply?.error?.text ?? `the daemon answered ${response.status}`);
}

export const getJson = async (path, options) => (await ask(path, options)).json();
export const getText = async (path) => (await ask(path)).text();

/** Does something; the daemon's answer in words. */
export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  if (session.csrf) headers["x-ballast-csrf"] = session.csrf;
  const response = await ask(path, { method: "POST", headers, body: JSON.stringify(body ?? null) });
  return response.status === 204 ? "" : (await response.json()).message;
}

/** Asks again who is logged in. */
export async function renew() {
  session = await getJson("/page/session");
  return session;
}

export const ofGuest = (name, what) => `/v1/guests/${encodeURIComponent(name)}/${what}`;
