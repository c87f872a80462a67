// The question for a token, on the port.
import { make, tell } from "./dom.js";
import { post } from "./api.js";

export function login(main, done) {
  const token = make("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  main.replaceChildren(make("form", { onsubmit: async (event) => {
    event.preventDefault();
    try {
      await post("/page/login", { token: token.value });
      tell();
      done();
    } catch (error) {
      tell(error.message, true);
    }
  } }, make("h2", {}, "Log in"), make("p", {}, "The token is in the file that the daemon's configuration names in [page]."),
  make("label", { for: "token" }, "token "), token, " ", make("button", { id: "log-in" }, "log in")));
  token.focus();
}
