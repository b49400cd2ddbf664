// Ground: the other tabs of this page. What one of them changes is told to all others, once.

export const others = new BroadcastChannel("brain");
