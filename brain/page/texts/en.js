// English. Places in braces are filled in; a text that depends on a number has a form for each kind of it.

export const en = {
  // The frame
  skip: "Skip to the message",
  conversations: "Conversations",
  toggleHistory: "Show or hide the conversations",
  fresh: "New conversation",
  search: "Search conversations",
  searchShort: "Search",
  conversation: "Conversation",
  model: "Model",
  specialists: "Specialists",
  memory: "Memory",
  settings: "Settings",
  newest: "Newest",

  // The composer
  message: "Message",
  messageShort: "Ask something…",
  steerShort: "Add something while Brain writes…",
  hint: "Enter sends, Shift+Enter starts a new line",
  hintWriting: "Esc stops",
  send: "Send",
  stop: "Stop",
  steer: "Steer",
  attach: "Attach",
  picker: "Files to attach",
  files: "Attached files",

  // Messages
  you: "You",
  brain: "Brain",
  retry: "Retry",
  edit: "Edit",
  copy: "Copy",
  copied: "Copied",

  // What can go wrong
  refused: "The server answered {status}.",
  unreachable: "The server could not be reached.",

  // Numbers
  ms: "{count} ms",
  seconds: "{time} s",
  bytes: { one: "{count} byte", other: "{count} bytes" },
  kib: "{count} KiB",
  mib: "{size} MiB",
};
