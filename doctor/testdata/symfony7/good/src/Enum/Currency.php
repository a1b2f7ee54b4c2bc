<?php

namespace App\Enum;

enum Currency: string
{
    case Euro = 'EUR';
    case Dollar = 'USD';
}
