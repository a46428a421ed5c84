package topology

import (
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// Profile is the virtual host's profile; never unset.
func (v *VHost) Profile() deadletter.Profile {
	if v.Metadata.Profile == "" {
		return deadletter.RabbitMQ // the record is older than profiles
	}
	return v.Metadata.Profile
}

// DefaultProfile is the profile of virtual hosts that are created without one.
func (s *State) DefaultProfile() deadletter.Profile { return s.options.DefaultProfile }

// settleProfile decides the profile of a virtual host that is created or changed. An unset profile means the server's
// default for a new virtual host, and no change for an existing one. The profile cannot change while there are queues,
// because they were declared by its rules. v is nil for a new virtual host.
func (s *State) settleProfile(name message.VHost, v *VHost, wanted deadletter.Profile) (deadletter.Profile, error) {
	now := s.options.DefaultProfile
	if v != nil {
		now = v.Profile()
	}
	if wanted == "" {
		wanted = now
	}
	if _, ok := deadletter.ParseProfile(string(wanted)); !ok {
		return "", Refuse(Invalid, "%s is not a valid profile", wanted)
	}
	if v != nil && wanted == now {
		return wanted, nil
	}
	if err := CheckName(wanted, string(name)); err != nil {
		return "", Refuse(Invalid, "vhost %s", err)
	}
	if v == nil {
		return wanted, nil
	}
	if n := len(v.queues); n > 0 {
		return "", Refuse(Invalid, "the profile of vhost '%s' is %s and cannot change: it has %d queues", name, now, n)
	}
	for _, x := range v.Exchanges() {
		if err := CheckName(wanted, string(x.Name)); err != nil && !x.Predeclared {
			return "", Refuse(Invalid, "the profile of vhost '%s' cannot change: its %s", name, x.Resource())
		}
	}
	for _, p := range slices.Concat(v.policies, v.operatorPolicies) {
		if key := forbiddenPolicyKey(wanted, p.Definition); key != "" {
			return "", Refuse(Invalid, "the profile of vhost '%s' cannot change: policy '%s' sets %s", name, p.Name, key)
		}
	}
	return wanted, nil
}

// forbiddenPolicyKey returns a key of a policy that the profile forbids, "" if there is none: in ApsaraMQ only a queue's
// declaration sets its dead-lettering (DL-22.4).
func forbiddenPolicyKey(p deadletter.Profile, d Definition) string {
	if p != deadletter.ApsaraMQ {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(d)) {
		switch key {
		case "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "message-ttl":
			return key
		}
	}
	return ""
}

// checkPolicyKeys refuses a policy with a key that the profile forbids.
func (v *VHost) checkPolicyKeys(d Definition) error {
	if key := forbiddenPolicyKey(v.Profile(), d); key != "" {
		return validationFailed(fmt.Sprintf("%s cannot be set by a policy in vhost '%s', whose profile is %s", key, v.Name, v.Profile()))
	}
	return nil
}

// withProfile removes settings that the queue's profile does not have: ApsaraMQ has no length limits, and priorities only
// if they are enabled (DL-22.1, DL-22.14).
func (s *Settings) withProfile(q *Queue) {
	if q.Profile != deadletter.ApsaraMQ {
		return
	}
	s.MaxLength, s.MaxLengthBytes, s.Overflow, s.ConsumerTimeout = nil, nil, queue.DropHead, nil
	if !q.Priorities {
		s.MaxPriority = nil
	}
}

// maxApsaraPriority is the largest x-max-priority in ApsaraMQ (DL-22.14).
const maxApsaraPriority = 10

// checkProfile checks a new queue by its virtual host's profile.
func (v *VHost) checkProfile(d *QueueDecl, priorities bool) error {
	if v.Profile() != deadletter.ApsaraMQ {
		return nil
	}
	r := d.resource()
	if n := integerArgument(d.Arguments, "x-max-priority"); priorities && n != nil && (*n < 1 || *n > maxApsaraPriority) {
		return invalidArg("x-max-priority", r, fmt.Sprintf("%d is not from 1 to %d", *n, maxApsaraPriority))
	}
	if key := textArgument(d.Arguments, "x-dead-letter-routing-key"); key != nil {
		if err := checkCharacters(v.Profile(), "key", *key, ""); err != nil {
			return invalidArg("x-dead-letter-routing-key", r, err.Error())
		}
	}
	return nil
}
