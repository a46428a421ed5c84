package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func text(field func(*Config) *string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "" {
				return "", errors.New("must not be empty")
			}
			*field(p.c) = value
			return "", nil
		},
		show: func(c *Config) []named { return one(*field(c)) },
	}
}

// secretText is a text. It refuses values encrypted by Erlang's tools.
func secretText(field func(*Config) *string) value {
	v := text(field)
	return value{
		set: func(p *parser, name, value string) (string, error) {
			if strings.HasPrefix(value, "encrypted:") {
				return "", errors.New("is encrypted, which is not supported")
			}
			return v.set(p, name, value)
		},
		show: v.show,
	}
}

// pattern is a regular expression, as permissions are. An empty one permits nothing.
func pattern(field func(*Config) *string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if _, err := regexp.Compile(value); err != nil {
				return "", fmt.Errorf("is not a regular expression: %w", err)
			}
			*field(p.c) = value
			return "", nil
		},
		show: func(c *Config) []named { return []named{{"", *field(c)}} },
	}
}

func flag(field func(*Config) *bool) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			on, err := boolean(value)
			if err == nil {
				*field(p.c) = on
			}
			return "", err
		},
		show: func(c *Config) []named { return one(strconv.FormatBool(*field(c))) },
	}
}

// flagIfSaid is a flag whose default depends on others: nil until it is said.
func flagIfSaid(field func(*Config) **bool) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			on, err := boolean(value)
			if err == nil {
				*field(p.c) = &on
			}
			return "", err
		},
		show: func(c *Config) []named {
			if on := *field(c); on != nil {
				return one(strconv.FormatBool(*on))
			}
			return nil
		},
	}
}

// word is one of two words; the second means true.
func word(no, yes string, field func(*Config) *bool) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value != no && value != yes {
				return "", fmt.Errorf("is neither %s nor %s", no, yes)
			}
			*field(p.c) = value == yes
			return "", nil
		},
		show: func(c *Config) []named {
			if *field(c) {
				return one(yes)
			}
			return one(no)
		},
	}
}

func oneOf(values []string, field func(*Config) *string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			for _, v := range values {
				if v == value {
					*field(p.c) = value
					return "", nil
				}
			}
			return "", fmt.Errorf("is not %s", strings.Join(values, " or "))
		},
		show: func(c *Config) []named { return one(*field(c)) },
	}
}

// whole lists the types of integer fields.
type whole interface {
	~int | ~int64 | ~uint16 | ~uint32
}

// integer is a number of units; the field gets the product.
func integer[T whole](least, most int64, unit T, field func(*Config) *T) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < least || n > most {
				return "", fmt.Errorf("is not %s from %d to %d", counted(unit), least, most)
			}
			*field(p.c) = T(n) * unit
			return "", nil
		},
		show: func(c *Config) []named { return one(strconv.FormatInt(int64(*field(c)/unit), 10)) },
	}
}

// counted names what an integer with this unit counts.
func counted(unit any) string {
	switch unit {
	case time.Second:
		return "a number of seconds"
	case time.Millisecond:
		return "a number of milliseconds"
	case time.Minute:
		return "a number of minutes"
	}
	return "an integer"
}

// ifSaid is an integer that is shown only if it is set. 0 means not set: another package
// chooses the default.
func ifSaid[T whole](least, most int64, unit T, field func(*Config) *T) value {
	v := integer(least, most, unit, field)
	show := v.show
	v.show = func(c *Config) []named {
		if *field(c) == 0 {
			return nil
		}
		return show(c)
	}
	return v
}

// orWord is an integer, or a word that means no limit (0).
func orWord[T whole](word string, least, most int64, unit T, field func(*Config) *T) value {
	bounded := integer(least, most, unit, field)
	return value{
		set: func(p *parser, name, value string) (string, error) {
			if value == word {
				*field(p.c) = 0
				return "", nil
			}
			_, err := bounded.set(p, name, value)
			if err != nil {
				err = fmt.Errorf("%w or %s", err, word)
			}
			return "", err
		},
		show: func(c *Config) []named {
			if *field(c) == 0 {
				return one(word)
			}
			return bounded.show(c)
		},
	}
}

const maxMilliseconds = math.MaxInt64 / int64(time.Millisecond)

func milliseconds(least int64, field func(*Config) *time.Duration) value {
	return integer(least, maxMilliseconds, time.Millisecond, field)
}

// share is a fraction of the machine's memory. For disk_free_limit it may be above 1.
func share(most float64, field func(*Config) *Watermark) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil || !(f > 0 && f <= most) {
				return "", fmt.Errorf("is not a number above 0 and at most %v", most)
			}
			*field(p.c) = Watermark{Relative: f}
			return "", nil
		},
		show: func(c *Config) []named {
			if w := field(c); w.Relative > 0 {
				return one(strconv.FormatFloat(w.Relative, 'g', -1, 64))
			}
			return nil
		},
	}
}

func absolute(field func(*Config) *Watermark) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			n, err := byteSize(value)
			if err == nil {
				*field(p.c) = Watermark{Absolute: n}
			}
			return "", err
		},
		show: func(c *Config) []named {
			if w := field(c); w.Relative == 0 {
				return one(strconv.FormatInt(w.Absolute, 10))
			}
			return nil
		},
	}
}

func port(field func(*Config) *string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if err := checkPort(value); err != nil {
				return "", err
			}
			*field(p.c) = value
			return "", nil
		},
		show: func(c *Config) []named {
			if *field(c) == NoAddress {
				return nil // another key shows it
			}
			return one(*field(c))
		},
	}
}

func level(field func(*Config) *string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if _, _, err := LogLevel(value); err != nil {
				return "", errors.New(notLevel)
			}
			*field(p.c) = value
			return "", nil
		},
		show: func(c *Config) []named { return one(*field(c)) },
	}
}

func boolean(value string) (bool, error) {
	switch value {
	case "true", "on":
		return true, nil
	case "false", "off":
		return false, nil
	}
	return false, errors.New("is neither true nor false")
}

// units are RabbitMQ's. A unit without B is a power of two.
var units = map[string]int64{
	"": 1, "B": 1,
	"k": 1 << 10, "K": 1 << 10, "kiB": 1 << 10, "KiB": 1 << 10, "kB": 1e3, "KB": 1e3,
	"M": 1 << 20, "MiB": 1 << 20, "MB": 1e6,
	"G": 1 << 30, "GiB": 1 << 30, "GB": 1e9,
	"T": 1 << 40, "TiB": 1 << 40, "TB": 1e12,
}

// byteSize reads a size such as 50MB, 2GiB or 1048576.
func byteSize(value string) (int64, error) {
	digits := strings.TrimRight(value, "BGKMTik")
	unit, known := units[value[len(digits):]]
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || !known || n < 0 || n > math.MaxInt64/unit {
		return 0, errors.New("is not a size such as 50MB, 2GiB or 1048576")
	}
	return n * unit, nil
}

// listenAddress reads a port for all interfaces, or HOST:PORT.
func listenAddress(value string) (string, error) {
	if checkPort(value) == nil {
		return ":" + value, nil
	}
	host, port, err := hostPort(value)
	if err != nil {
		return "", errors.New("is neither a port nor HOST:PORT")
	}
	return net.JoinHostPort(host, port), nil
}

// hostPort reads HOST:PORT. The last colon separates, so that RabbitMQ's :::5672 is every interface and ::1:5672 loopback;
// brackets around an address of IPv6 may be there. * is every interface.
func hostPort(value string) (host, port string, err error) {
	at := strings.LastIndexByte(value, ':')
	if at <= 0 || checkPort(value[at+1:]) != nil {
		return "", "", errors.New("is not HOST:PORT")
	}
	host, port = value[:at], value[at+1:]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(host, ":") {
			return "", "", errors.New("is not HOST:PORT")
		}
	}
	if host == "*" {
		return "", port, nil
	}
	if _, bad := netip.ParseAddr(host); bad != nil && strings.ContainsAny(host, ":[]*/ ") {
		return "", "", errors.New("is not HOST:PORT")
	}
	return host, port, nil
}

// shownAddress is the form that listenAddress reads.
func shownAddress(address string) string { return strings.TrimPrefix(address, ":") }

func checkPort(value string) error {
	if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
		return errors.New("is not a port from 1 to 65535")
	}
	return nil
}

// byteCount is a size of at least the given number of bytes; 0 means not set.
func byteCount(least int64, field func(*Config) *int64) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			n, err := byteSize(value)
			if err == nil && n < least {
				err = fmt.Errorf("is less than %d bytes", least)
			}
			if err == nil {
				*field(p.c) = n
			}
			return "", err
		},
		show: func(c *Config) []named {
			if *field(c) == 0 {
				return nil
			}
			return one(strconv.FormatInt(*field(c), 10))
		},
	}
}
