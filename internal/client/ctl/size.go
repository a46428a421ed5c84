package ctl

import (
	"strconv"
	"strings"
)

// units are RabbitMQ's information units, in bytes.
var units = map[string]int64{
	"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 1000, "m": 1 << 20, "mib": 1 << 20, "mb": 1000_000,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1000_000_000, "t": 1 << 40, "tib": 1 << 40, "tb": 1000_000_000_000,
}

// parseSize reads a number of bytes with an optional unit, such as 512MiB.
func parseSize(text string) (bytes int64, ok bool) {
	digits := strings.TrimRight(text, "bBkKmMgGtTiI ")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit, known := units[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	if err != nil || !known || n < 0 || n > 1<<62/unit {
		return 0, false
	}
	return n * unit, true
}
