// Keeps what is meant for OpenCode itself out of the environment of the agent's shell commands.
// No import: an unresolvable one would fail every prompt.
const HIDDEN = [
  "OPENCODE_SERVER_PASSWORD",
  "OPENCODE_CONFIG",
  "OPENCODE_CONFIG_DIR",
  "npm_config_registry",
  "npm_config_fetch_retries",
]

// The server has read it by now (guard.js, which deletes it as well when the runner says so).
delete process.env.OPENCODE_SERVER_PASSWORD

export const ShellEnv = async () => ({
  "shell.env": async (_input, output) => {
    for (const name of HIDDEN) output.env[name] = ""
  },
})
