package metrics

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

func (s *scrape) exchanges() (list []broker.ExchangeInfo) {
	s.Broker.Read(func(state *topology.State, _ *auth.Users) {
		for _, v := range state.VHosts() {
			if s.sees(v.Name) {
				v.EachExchange(func(x *topology.Exchange) { list = append(list, s.Broker.DescribeExchange(x)) })
			}
		}
	})
	return broker.SortExchanges(list)
}

func exchangeCounter(name, help string) *metric { return counter(name, help, "vhost", "exchange") }

var (
	exchangePublished = exchangeCounter("exchange_messages_published_total", "Total number of messages published into an exchange")
	exchangeConfirmed = exchangeCounter("exchange_messages_confirmed_total", "Total number of messages published into an exchange and confirmed")
	exchangeReturned  = exchangeCounter("exchange_messages_unroutable_returned_total", "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable")
	exchangeDropped   = exchangeCounter("exchange_messages_unroutable_dropped_total", "Total number of messages published as non-mandatory into an exchange and dropped as unroutable")
)

// exchangeFamily shows the exchanges with publishes. Confirms are counted by channel, not by
// exchange.
var exchangeFamily = &family{
	name: "exchange_metrics", objects: true, metrics: []*metric{exchangePublished, exchangeConfirmed, exchangeReturned, exchangeDropped},
	collect: func(s *scrape) {
		for _, x := range s.exchanges() {
			if x.Stats.In.Load() == 0 {
				continue
			}
			vhost, name := string(x.VHost), string(x.Name)
			s.put(exchangePublished, float64(x.Stats.In.Load()), vhost, name)
			s.put(exchangeConfirmed, 0, vhost, name)
			s.put(exchangeReturned, float64(x.Stats.Returned.Load()), vhost, name)
			s.put(exchangeDropped, float64(x.Stats.Dropped.Load()), vhost, name)
		}
	},
}

var (
	delayedMessages = gauge("bartleby_exchange_messages_delayed", "Messages that wait in an x-delayed-message exchange", "vhost", "exchange").whole()
	allDelayed      = gauge("bartleby_messages_delayed", "Messages that wait in x-delayed-message exchanges").whole()
	delayedDropped  = counter("bartleby_delayed_messages_dropped_total", "Messages that were dropped while they waited, as their exchange was deleted or purged").whole()
)

// delayedFamily is ours: what waits in the exchanges that delay messages.
var delayedFamily = &family{name: "delayed_messages", collect: func(s *scrape) {
	total := 0
	for _, x := range s.exchanges() {
		n, delays := s.Broker.Delayed(x)
		if total += n; delays && !s.total {
			s.put(delayedMessages, float64(n), string(x.VHost), string(x.Name))
		}
	}
	if s.total {
		s.put(allDelayed, float64(total))
		s.put(delayedDropped, float64(s.Broker.Totals.DelayedDropped.Load()))
	}
}}

var (
	settled       = counter("bartleby_settle_total", "Notes of consumers why they reject a delivery").whole()
	settleUnknown = counter("bartleby_settle_unknown_total", "Notes of consumers that named no delivery of their channel that is out, or made no sense").whole()
)

// settleFamily is ours: what consumers publish to the exchange bartleby.settle.
var settleFamily = &family{collect: func(s *scrape) {
	if s.total {
		s.put(settled, float64(s.Broker.Totals.Settled.Load()))
		s.put(settleUnknown, float64(s.Broker.Totals.SettleUnknown.Load()))
	}
}}

var vhostStatus = gauge("rabbitmq_cluster_vhost_status", "Whether a given vhost is running", "vhost").whole()

var vhostFamily = &family{name: "vhost_status", onRequest: true, collect: func(s *scrape) {
	s.Broker.Read(func(state *topology.State, _ *auth.Users) {
		for _, v := range state.VHosts() {
			if s.sees(v.Name) {
				s.put(vhostStatus, 1, string(v.Name))
			}
		}
	})
}}

var (
	exchangeBindings = gauge("rabbitmq_cluster_exchange_bindings", "Number of bindings for an exchange. This value is cluster-wide.", "vhost", "exchange", "type").whole()
	exchangeName     = gauge("rabbitmq_cluster_exchange_name", "Enumerates exchanges without any additional info. This value is cluster-wide. A cheaper alternative to `exchange_bindings`", "vhost", "exchange", "type").whole()
)

var bindingFamily = &family{name: "exchange_bindings", onRequest: true, collect: func(s *scrape) {
	for _, x := range s.exchanges() {
		s.put(exchangeBindings, float64(x.Bindings), string(x.VHost), string(x.Name), string(x.Type))
	}
}}

var exchangeNameFamily = &family{name: "exchange_names", onRequest: true, collect: func(s *scrape) {
	for _, x := range s.exchanges() {
		s.put(exchangeName, 1, string(x.VHost), string(x.Name), string(x.Type))
	}
}}
