// The terminal's page: xterm.js on ttyd's wire protocol.
"use strict";
(() => {
  const FIRST_WAIT = 500; // milliseconds before the first attempt to connect again; doubled each time
  const LONGEST_WAIT = 2_000; // a gateway that was killed is back within seconds, and to ask costs next to nothing
  const HIGH_WATER = 1_000_000; // bytes given to xterm.js but not drawn yet: the shell is then held back
  const LOW_WATER = 100_000;

  // xterm.js makes style elements; the page's policy lets only those in that carry the nonce
  const nonce = document.currentScript.dataset.styleNonce;
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const element = create(name, options);
    if (String(name).toLowerCase() === "style") element.nonce = nonce;
    return element;
  };

  // it sets a colour of a cell by the attribute, which the policy refuses; by the property it may
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (String(name).toLowerCase() === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };

  const terminal = new Terminal({
    allowProposedApi: true, // by which xterm.js is told how wide characters are
    cursorBlink: true,
    fontSize: 14,
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    scrollback: 10_000,
    theme: { background: "#16161a" },
  });
  const fit = new FitAddon.FitAddon();
  terminal.loadAddon(fit);
  if (window.Unicode11Addon) {
    terminal.loadAddon(new Unicode11Addon.Unicode11Addon());
    terminal.unicode.activeVersion = "11";
  }
  terminal.open(document.getElementById("terminal"));
  fit.fit();
  terminal.focus();

  const notice = document.getElementById("notice");
  const say = (text) => {
    notice.textContent = text;
    notice.hidden = text === "";
  };

  const encoder = new TextEncoder();
  const decoder = new TextDecoder();
  let socket = null;
  let wait = FIRST_WAIT;
  let ended = false;
  let undrawn = 0;
  let paused = false;
  let replaying = false; // what comes is not new: its questions to the terminal were answered long ago

  const send = (kind, data) => {
    if (!socket || socket.readyState !== WebSocket.OPEN) return;
    const bytes = typeof data === "string" ? encoder.encode(data) : data;
    const message = new Uint8Array(bytes.length + 1);
    message[0] = kind.charCodeAt(0);
    message.set(bytes, 1);
    socket.send(message);
  };
  const size = () => JSON.stringify({ columns: terminal.cols, rows: terminal.rows });

  const draw = (data) => {
    undrawn += data.length;
    terminal.write(data, () => {
      undrawn -= data.length;
      if (paused && undrawn < LOW_WATER) {
        paused = false;
        send("3", "");
      }
    });
    if (!paused && undrawn > HIGH_WATER) {
      paused = true;
      send("2", "");
    }
  };

  const again = async () => {
    // a WebSocket does not say why it was refused; the same path asked in the ordinary way does
    const answer = await fetch("token").catch(() => null);
    if (answer && answer.status === 401) {
      say("Your access has expired: open the terminal from the session in Valet again.");
      return;
    }
    say("Connecting again …");
    setTimeout(connect, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  };

  const connect = () => {
    const address = new URL("ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const mine = (socket = new WebSocket(address, ["tty"]));
    mine.binaryType = "arraybuffer";
    ended = false;
    mine.onopen = () => {
      terminal.reset(); // the recent output comes again
      undrawn = 0;
      paused = false;
      replaying = true;
      fit.fit();
      mine.send(JSON.stringify({ AuthToken: "", columns: terminal.cols, rows: terminal.rows, marked: true }));
    };
    mine.onmessage = (event) => {
      wait = FIRST_WAIT;
      say("");
      const data = new Uint8Array(event.data);
      const kind = String.fromCharCode(data[0]);
      if (kind === "0") draw(data.subarray(1));
      else if (kind === "h") terminal.write("", () => { if (mine === socket) replaying = false; });
      else if (kind === "1") document.title = decoder.decode(data.subarray(1));
      else if (kind === "2") Object.assign(terminal.options, JSON.parse(decoder.decode(data.subarray(1))));
    };
    mine.onclose = (event) => {
      if (event.code === 1000) {
        ended = true;
        say("The shell has ended. Press Enter for a new one.");
      } else {
        again();
      }
    };
  };

  terminal.onData((text) => {
    if (ended && text === "\r") connect();
    else if (!replaying) send("0", text);
  });
  terminal.onBinary((text) => send("0", Uint8Array.from(text, (character) => character.charCodeAt(0))));
  terminal.onResize(() => send("1", size()));
  terminal.onTitleChange((title) => { document.title = title; });
  new ResizeObserver(() => fit.fit()).observe(document.getElementById("terminal"));
  connect();
})();
