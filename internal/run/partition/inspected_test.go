//go:build invariants

package partition

// inspected says that each hold checks its queues as a whole, so that long queues take long.
const inspected = true
