<?php

namespace App\Payment;

use App\Message\ChargeOrder;
use Symfony\Contracts\HttpClient\HttpClientInterface;

final readonly class Acquirer
{
    public function __construct(private HttpClientInterface $zaborClient)
    {
    }

    public function charge(ChargeOrder $message): string
    {
        return $this->zaborClient->request('POST', '/acquirer/v2/payments', [
            'headers' => ['Idempotency-Key' => 'zabor:'.rawurlencode($message->orderId).':charge'],
            'json' => [],
            'max_duration' => 40,
        ])->toArray()['id'];
    }
}
