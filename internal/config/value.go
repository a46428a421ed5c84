package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// setter is what a key does with its value; see key.set.
type setter func(p *parser, name, value string) (idle string, err error)

func text(field func(*Config) *string) setter {
	return func(p *parser, _, value string) (string, error) {
		if value == "" {
			return "", errors.New("it must not be empty")
		}
		*field(p.c) = value
		return "", nil
	}
}

// pattern is a regular expression, as permissions are. An empty one permits nothing.
func pattern(field func(*Config) *string) setter {
	return func(p *parser, _, value string) (string, error) {
		if _, err := regexp.Compile(value); err != nil {
			return "", fmt.Errorf("it must be a regular expression: %w", err)
		}
		*field(p.c) = value
		return "", nil
	}
}

func flag(field func(*Config) *bool) setter {
	return func(p *parser, _, value string) (string, error) {
		on, err := boolean(value)
		if err == nil {
			*field(p.c) = on
		}
		return "", err
	}
}

// notYet is a flag that may be off only: what it would turn on is not there, and
// whoever asks for it must not believe that it is.
func notYet(why string) setter {
	return func(_ *parser, _, value string) (string, error) {
		if on, err := boolean(value); err != nil || !on {
			return "", err
		}
		return "", errors.New(why)
	}
}

func oneOf(values []string, field func(*Config) *string) setter {
	return func(p *parser, _, value string) (string, error) {
		for _, v := range values {
			if v == value {
				*field(p.c) = value
				return "", nil
			}
		}
		return "", fmt.Errorf("it must be %s", strings.Join(values, " or "))
	}
}

func integer(least, most int64, set func(*Config, int64)) setter {
	return func(p *parser, _, value string) (string, error) {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least || n > most {
			return "", fmt.Errorf("it must be an integer from %d to %d", least, most)
		}
		set(p.c, n)
		return "", nil
	}
}

// orInfinity is an integer or "infinity", which is told as 0: no limit.
func orInfinity(least, most int64, set func(*Config, int64)) setter {
	bounded := integer(least, most, set)
	return func(p *parser, name, value string) (string, error) {
		if value == "infinity" {
			set(p.c, 0)
			return "", nil
		}
		_, err := bounded(p, name, value)
		if err != nil {
			err = fmt.Errorf("%w, or infinity", err)
		}
		return "", err
	}
}

func milliseconds(least int64, field func(*Config) *time.Duration) setter {
	return integer(least, math.MaxInt64/int64(time.Millisecond), func(c *Config, n int64) {
		*field(c) = time.Duration(n) * time.Millisecond
	})
}

// share is a part of all the memory there is; of free disk it may be more than one.
func share(most float64, field func(*Config) *Watermark) setter {
	return func(p *parser, _, value string) (string, error) {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f > 0 && f <= most) {
			return "", fmt.Errorf("it must be a number above 0 and not above %v", most)
		}
		*field(p.c) = Watermark{Relative: f}
		return "", nil
	}
}

func absolute(field func(*Config) *Watermark) setter {
	return func(p *parser, _, value string) (string, error) {
		n, err := byteSize(value)
		if err == nil {
			*field(p.c) = Watermark{Absolute: n}
		}
		return "", err
	}
}

func port(field func(*Config) *string) setter {
	return func(p *parser, _, value string) (string, error) {
		if err := checkPort(value); err != nil {
			return "", err
		}
		*field(p.c) = value
		return "", nil
	}
}

func boolean(value string) (bool, error) {
	switch value {
	case "true", "on":
		return true, nil
	case "false", "off":
		return false, nil
	}
	return false, errors.New("it must be true or false")
}

// units are RabbitMQ's, of which those without a B are powers of two.
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
		return 0, errors.New("it must be a size, such as 50MB, 2GiB or a number of bytes")
	}
	return n * unit, nil
}

// listenAddress reads a port, which is that of every interface, or HOST:PORT.
func listenAddress(value string) (string, error) {
	if checkPort(value) == nil {
		return ":" + value, nil
	}
	host, port, err := net.SplitHostPort(value)
	if err != nil || host == "" || checkPort(port) != nil {
		return "", errors.New("it must be a port or HOST:PORT")
	}
	return net.JoinHostPort(host, port), nil
}

func checkPort(value string) error {
	if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
		return errors.New("it must be a port, 1 to 65535")
	}
	return nil
}
