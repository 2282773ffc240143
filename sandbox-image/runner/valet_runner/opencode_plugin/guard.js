// Runs inside OpenCode before OpenCode itself (BUN_INSPECT_PRELOAD). It makes the process unreadable to others of its
// user, and takes the server's password from standard input, so that no environment on disk or in /proc ever has it.
// The runner closes standard input when the server has the password; after that no child of OpenCode inherits it.
import { dlopen } from "bun:ffi"
import { createReadStream, readSync } from "node:fs"

const PR_SET_DUMPABLE = 4n
const LIBRARIES = ["libc.so.6", "libc.so", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"]
const CANNOT_PROTECT = 70

function prctl() {
  for (const name of LIBRARIES) {
    try {
      return dlopen(name, { prctl: { args: ["u64", "u64", "u64", "u64", "u64"], returns: "i32" } }).symbols.prctl
    } catch {}
  }
  return () => -1
}

if (process.platform === "linux" && prctl()(PR_SET_DUMPABLE, 0n, 0n, 0n, 0n) !== 0) {
  console.log("OpenCode cannot be protected from its own commands: prctl failed")
  process.exit(CANNOT_PROTECT)
}

const piece = Buffer.alloc(256)
let line = ""
while (!line.includes("\n")) {
  const size = readSync(0, piece)
  if (size === 0) break
  line += piece.toString("latin1", 0, size)
}
process.env.OPENCODE_SERVER_PASSWORD = line.trim()
delete process.env.BUN_INSPECT_PRELOAD

const hide = () => delete process.env.OPENCODE_SERVER_PASSWORD
createReadStream("", { fd: 0, autoClose: false })
  .on("data", () => {})
  .on("end", hide)
  .on("error", hide)
