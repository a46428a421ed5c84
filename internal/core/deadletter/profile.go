package deadletter

// Profile is whose rules a virtual host follows where products differ (DL-22).
type Profile string

// The profiles. An unset one stands for RabbitMQ, but where a default is asked for.
const (
	RabbitMQ Profile = "rabbitmq"
	ApsaraMQ Profile = "apsaramq"
)

// Profiles lists them all.
var Profiles = []Profile{RabbitMQ, ApsaraMQ}

// ParseProfile reads a profile's name; ok is false for anything else.
func ParseProfile(s string) (p Profile, ok bool) {
	switch p = Profile(s); p {
	case RabbitMQ, ApsaraMQ:
		return p, true
	}
	return "", false
}
