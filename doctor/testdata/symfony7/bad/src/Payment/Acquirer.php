<?php

namespace App\Payment;

use App\Message\ChargeOrder;
use Symfony\Component\Uid\Uuid;
use Symfony\Contracts\HttpClient\HttpClientInterface;

final readonly class Acquirer
{
    public function __construct(private HttpClientInterface $acquirerClient)
    {
    }

    public function charge(ChargeOrder $message): string
    {
        return $this->send('/payments', Uuid::v7()->toRfc4122());
    }

    private function send(string $path, string $key): string
    {
        $fallback = $key ?: time();

        return $this->acquirerClient->request('POST', '/v2/payments', [ // ZB150
            'headers' => ['X-Idempotency-Key' => $fallback], // ZB152
            'json' => [],
        ])->toArray()['id'];
    }
}
