// A gateway with keys: the visitor's own key stays in this tab, and only short-lived tokens made with it open sockets.

const STORED = "voxgate-key";
const TTL_S = 60;
const $ = (id) => document.getElementById(id);

// A fresh token; asks for the key where there is none, or where it is refused. Rejects when the gateway is not there.
export async function token() {
  for (;;) {
    const key = sessionStorage.getItem(STORED) ?? (await asked());
    const body = JSON.stringify({ ttl_s: TTL_S });
    const answer = await fetch("/v1/tokens", { method: "POST", headers: { Authorization: `Bearer ${key}` }, body });
    if (answer.ok) {
      sessionStorage.setItem(STORED, key);
      if (!$("key-form").hidden) $("text").focus(); // what had the focus goes away
      $("key-form").hidden = true;
      return (await answer.json()).token;
    }
    if (answer.status !== 401) throw new Error(`no token: ${answer.status}`);
    sessionStorage.removeItem(STORED);
    $("key-trouble").textContent = "This key is not valid.";
    $("key").select();
  }
}

function asked() {
  $("key-form").hidden = false;
  $("key").focus();
  return new Promise((resolve) => {
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      const key = $("key").value.trim();
      // A header takes nothing else, and no key has more.
      if (/^[\x21-\x7e]+$/.test(key)) resolve(key);
      else $("key-trouble").textContent = "A key has letters, digits and signs only.";
    };
  });
}
